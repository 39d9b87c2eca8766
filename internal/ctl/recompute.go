package ctl

import (
	"encoding/json"
	"errors"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type recomputeCommand struct {
	Certificate string `arg:"" help:"Certificate file; '-' reads standard input."`
	Inputs      string `required:"" placeholder:"FILE" help:"File with a JSON array of {input, salt} in party order."`
	Params      string `required:"" placeholder:"FILE" help:"File with algorithm_params of the deal."`
}

func (recomputeCommand) Help() string {
	return `Opens the commitments, recomputes input_root and the result, and compares all three with the certificate. The last line is the result in RFC 8785 form. The command does not check the signature and the log proof: use fairpactctl verify for these.

For an input that was never revealed, put null into the array of --inputs. The command then computes no result.

Examples:

    jq -s . alice.sealed.json bob.sealed.json > inputs.json
    fairpactctl recompute cert.json --inputs inputs.json --params params.json
    fairpactctl recompute cert.json --inputs inputs.json --params params.json --json`
}

func (r recomputeCommand) Run(t *terminal) error {
	cert, err := t.tree(r.Certificate)
	if err != nil {
		return err
	}
	inputs, err := t.inputs(r.Inputs)
	if err != nil {
		return err
	}
	params, err := t.object(r.Params)
	if err != nil {
		return err
	}
	members, ok := cert.(map[string]any)
	if !ok {
		return errors.New(r.Certificate + " is not a JSON object")
	}
	full := verification.Verify(verification.Evidence{Certificate: cert, Inputs: inputs, Params: params})
	report := verification.Report{Valid: true}
	for _, check := range full.Checks {
		switch check.Name {
		case verification.Shape, verification.Draw, verification.Commitments, verification.InputRoot, verification.Result:
			report.Add(check)
		}
	}
	result := result(members, inputs, params)
	return t.report(report, struct {
		verification.Report
		Result json.RawMessage `json:"result"`
	}{report, result}, verdict(report), "result "+string(result))
}

// result returns the result of the given inputs, even if they do not open the certificate's
// commitments. It returns null if no result can be computed.
func result(cert map[string]any, inputs []any, params map[string]any) json.RawMessage {
	none := json.RawMessage("null")
	payload, err := certificate.Parse(canon.Encode(cert))
	if err != nil {
		return none
	}
	opened := make([]map[string]any, len(inputs))
	for i, row := range inputs {
		members, _ := row.(map[string]any)
		input, ok := members["input"].(map[string]any)
		if !ok {
			return none
		}
		opened[i] = input
	}
	again, err := verification.Recompute(payload, opened, params)
	if err != nil {
		return none // the result check reports why
	}
	return again
}
