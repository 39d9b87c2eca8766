package translog

import (
	"strings"
	"testing"
)

// An address that no call can be made to is found out at the start, and is not
// shown where it may hold a password.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"http://log-append:8091": true, "http://log-append:8091/": true, "https://log.test": true, "http://[::1]:8090": true, "http://10.0.0.1:8090/log": true,
		"": false, "http://": false, "http://log:port": false, "http://log:0": false, "http://log:65536": false, "http://log:": false, "http://:8091": false, "log-append:8091": false, "//log:8091": false,
		"ftp://log:8091": false, "HTTP://log:8091": true, "http://log:8091?a=b": false, "http://log:8091#a": false, "http://log 1:8091": false,
		"http://user:hunter2@log:8091": false, "http://user:hunter2@log:port": false, "http://hunter2@log": false, "user:hunter2@log": false,
	} {
		err := CheckURL(address)
		if (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "http://HOST:PORT") {
			t.Errorf("%q: %v", address, err)
		}
		if !strings.Contains(address, "@") && !strings.Contains(err.Error(), `"`+address+`"`) {
			t.Errorf("%q is not shown: %v", address, err)
		}
	}
}
