package service

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// maxName is the longest application_name that Postgres stores, in bytes.
const maxName = 63

const namePrefix = "fairpact/"

const noSecrets = "-"

// ApplicationName returns the application_name of a process: fairpact/BINARY/KEYSET/SECRETS/HOST.PID.
// KEYSET and SECRETS are digests; SECRETS is "-" if the process has no server secrets. If HOST.PID
// is too long, its start is cut off, because the host names of pods differ at the end.
func ApplicationName(binary, keySet, secrets string) string {
	host, _ := os.Hostname()
	name := namePrefix + binary + "/" + keySet + "/" + cmp.Or(secrets, noSecrets) + "/"
	self := fmt.Sprintf("%s.%d", host, os.Getpid())
	return name + self[max(0, len(self)-(maxName-len(name))):]
}

// Process is a parsed application_name. KeySet and Secrets are digests. Secrets is empty if
// the process has no server secrets. Host ends with the PID.
type Process struct{ Binary, KeySet, Secrets, Host string }

// ParseApplicationName reports whether the name has the form that ApplicationName returns.
func ParseApplicationName(name string) (p Process, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(name, namePrefix), "/", 4)
	if !strings.HasPrefix(name, namePrefix) || len(parts) != 4 {
		return p, false
	}
	return Process{Binary: parts[0], KeySet: parts[1], Secrets: strings.TrimPrefix(parts[2], noSecrets), Host: parts[3]}, true
}
