// Command awsserver serves AWS KMS as the tests know it, for clients of other
// languages, until it is killed. It prints the endpoint and the ARNs of a
// signing key, a disabled one, one that is pending deletion, one of P-384 and a
// symmetric one.
package main

import (
	"fmt"
	"log"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func main() {
	a, err := kmstest.StartAWS()
	if err != nil {
		log.Fatal(err)
	}
	good, disabled, leaving := a.NewKey(), a.NewKey(), a.NewKey()
	a.SetState(disabled, "Disabled")
	a.SetState(leaving, "PendingDeletion")
	p384 := a.NewKeyOf("ECC_NIST_P384", "SIGN_VERIFY", false)
	symmetric := a.NewKeyOf("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", false)
	fmt.Println(a.URL(), good, disabled, leaving, p384, symmetric)
	select {}
}
