package signing

import (
	"strings"
	"testing"
)

// Who puts a credential into a key's URI is told that it does not belong there,
// and does not find it in the log.
func TestURIsWithACredentialAreNotShown(t *testing.T) {
	t.Parallel()
	const (
		gcp = "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
		aws = "awskms:///arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	)
	for uri, says := range map[string]string{
		gcp + "?token=hunter2":                                     `"token"`,
		gcp + "?plaintext=hunter2":                                 `"plaintext"`,
		gcp + "?endpoint=u:hunter2@127.0.0.1:1":                    "'@'",
		gcp + "?plaintext=true&endpoint=u%3Ahunter2%40127.0.0.1:1": `"endpoint"`,
		gcp + "?endpoint=127.0.0.1:1&endpoint=hunter2":             `"endpoint"`,
		gcp + "?token=hunter2%zz":                                  "does not parse",
		gcp + "?token=x%hu":                                        "does not parse",
		strings.Replace(gcp, "//", "//user:hunter2@", 1):           "'@'",
		"gcpkms://user:hunter2@projects/p":                         "'@'",
		aws + "?token=hunter2":                                     `"token"`,
		aws + "?region=hunter2":                                    `"region"`,
		aws + "?endpoint=https://u:hunter2@127.0.0.1:1":            "'@'",
		aws + "?endpoint=https%3A%2F%2Fu%3Ahunter2%40127.0.0.1":    `"endpoint"`,
		aws + "?token=x%hu":                                        "does not parse",
		strings.Replace(aws, "///", "//AKIA:hunter2@/", 1):         "'@'",
		"awskms:///alias/hunter2@x":                                "'@'",
		"awskms:///AKIA:hunter2@111122223333":                      "'@'",
		aws + "?endpoint=http://x/hunter2":                         `"endpoint"`,
	} {
		_, err := Open(t.Context(), uri)
		switch {
		case err == nil:
			t.Errorf("%s: opened", uri)
		case strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "%hu"):
			t.Errorf("%s: shown by %q", uri, err)
		case !strings.Contains(err.Error(), says):
			t.Errorf("%s: %q, want a word on %s", uri, err, says)
		}
	}
}
