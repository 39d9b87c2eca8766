package e2e

import (
	"encoding/json"
	"fmt"
)

// Valid has the certificate that the parties were given verified.
func (d *Soaked) Valid() error {
	var certificate struct {
		ID string `json:"cert_id"`
	}
	given := d.Promises[len(d.Promises)-1].Answer.Body
	if err := json.Unmarshal(given, &certificate); err != nil {
		return err
	}
	p, err := d.S.send(d.Ctx, "GET", "/v1/verify/"+certificate.ID, "", nil)
	if err != nil {
		return err
	}
	var verdict Report
	if err := json.Unmarshal(p.Answer.Body, &verdict); err != nil || !verdict.Valid {
		return fmt.Errorf("the certificate %s is answered %s (%v)", given, p.Answer.Body, err)
	}
	return nil
}
