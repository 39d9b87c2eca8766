package mcpapi

import (
	"context"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/wire"
)

// computeCommitment returns the commitment to an input and a salt (SPEC 2.6), and stores
// nothing. With a deal_id it also returns the bytes that a seat key signs. It then refuses an
// input that does not fit the deal, and warns of a legal but odd one, because a commitment is
// final. A party may pass its own commitment instead of the input.
func (s *server) computeCommitment(ctx context.Context, args arguments) (result, error) {
	type answer struct {
		Commitment string `json:"commitment"`
		ToSign     string `json:"to_sign,omitempty"`
		Warning    string `json:"warning,omitempty"`
	}
	var opening escrow.Opening
	var hashed answer
	var key *string // the seat key that the deal declares for the caller
	given := args["commitment"] != nil
	switch {
	case given && (args["input"] != nil || args["deal_id"] == nil):
		return result{}, problem.New(problem.InvalidRequest, "commitment came with input, or without deal_id; to learn what a seat key signs, pass commitment and deal_id; to hash an input, leave commitment out")
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
		_, access, err := s.deal(ctx, args, escrow.AsParty, "invite_token")
		if err != nil {
			return result{}, err
		}
		if !given {
			if hashed.Warning, err = access.CheckInput(opening.Input); err != nil {
				return result{}, err
			}
		}
		key = access.Deal().SeatKey(access.Party())
		message, err := s.Escrow.ToSign(access, hashed.Commitment)
		if err != nil {
			return result{}, err
		}
		hashed.ToSign = string(message)
	}
	return encoded(hashed, nil, func(a answer) next {
		if given {
			return afterToSign(args["deal_id"], key, a.Commitment)
		}
		step := afterHash(opening, args["deal_id"], key, a.Commitment)
		if a.Warning != "" {
			step.Why = "READ warning FIRST: a commitment is final. " + step.Why
		}
		return step
	})
}
