package mcp

import (
	"context"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// computeCommitment returns the commitment to an input and a salt (SPEC 2.6), and stores nothing.
// With a deal_id it also returns the bytes that a seat key signs, and checks the input against the
// deal, because a commitment is final. For the bytes alone, deal_id and a commitment are enough.
func (c *call) computeCommitment(ctx context.Context) (result, error) {
	args := c.args
	var opening escrow.Opening
	var hashed struct {
		Commitment string `json:"commitment"`
		ToSign     string `json:"to_sign,omitempty"`
		Warning    string `json:"warning,omitempty"`
	}
	var key *string // the seat key that the deal declares for the caller
	given := args["commitment"] != nil
	switch {
	case given && (args["input"] != nil || args["deal_id"] == nil):
		return result{}, problem.New(problem.InvalidRequest, "the argument `commitment` needs deal_id and cannot be combined with input: (1) to learn what a seat key signs, pass commitment and deal_id, and leave input out; (2) to hash an input, leave commitment out")
	case given:
		if _, err := wire.Commitment(args); err != nil {
			return result{}, err
		}
		hashed.Commitment = args["commitment"].(string)
	default:
		var err error
		if opening, err = wire.Opening(args); err != nil {
			return result{}, err
		}
		hashed.Commitment = canon.Commitment(canon.Encode(opening.Input), []byte(opening.Salt))
	}
	if args["deal_id"] != nil {
		by, err := c.Admit(ctx, &ops.Operation{Who: ops.Member, Action: escrow.AsParty}, c.message())
		if err != nil {
			return result{}, err
		}
		access := by.Access
		if !given {
			if hashed.Warning, err = access.CheckInput(opening.Input); err != nil {
				return result{}, err
			}
		}
		key = access.Deal().SeatKey(access.Party())
		message, err := c.Escrow.ToSign(access, hashed.Commitment)
		if err != nil {
			return result{}, err
		}
		hashed.ToSign = string(message)
	}
	body, err := web.Encode(hashed)
	if given {
		return result{body: body, next: afterToSign(args["deal_id"], key, hashed.Commitment)}, err
	}
	step := afterHash(opening, args["deal_id"], key, hashed.Commitment)
	if hashed.Warning != "" {
		step.Why = "READ `warning` FIRST: a commitment is final. " + step.Why
	}
	return result{body: body, next: step}, err
}
