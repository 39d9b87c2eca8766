package ops

import "testing"

func TestABlankBodyCountsAsLeftOut(t *testing.T) {
	for _, body := range []string{"", " ", "\r\n\t ", "{}"} {
		if members, err := Object([]byte(body), true); err != nil || len(members) > 0 {
			t.Errorf("the body %q: %v, %v, want no members", body, members, err)
		}
		if _, err := Object([]byte(body), false); (err == nil) != (body == "{}") {
			t.Errorf("the required body %q: %v, want an error unless it is an object", body, err)
		}
	}
}
