package mcp

import (
	"maps"
	"time"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// declaration converts the arguments of create_deal to the REST body. If the algorithm needs a
// beacon and beacon_round is missing, declaration sets beacon_round to the first round after
// reveal_deadline.
func (s *server) declaration(args map[string]any) (map[string]any, error) {
	body := maps.Clone(args)
	delete(body, "commit_seconds")
	delete(body, "reveal_seconds")
	from := time.Now().Unix()
	for _, phase := range []struct{ seconds, deadline string }{{"commit_seconds", "commit_deadline"}, {"reveal_seconds", "reveal_deadline"}} {
		length, ok := args[phase.seconds].(int64)
		switch given := args[phase.seconds] != nil; {
		case given && body[phase.deadline] != nil:
			return nil, problem.New(problem.InvalidRequest, "pass %s or %s, not both", phase.seconds, phase.deadline)
		case given && (!ok || length < 1 || length > deal.Longest):
			return nil, problem.New(problem.InvalidRequest, "%s must be an integer of 1 to %d", phase.seconds, deal.Longest)
		case given:
			body[phase.deadline] = from + length
		case body[phase.deadline] == nil:
			return nil, problem.New(problem.InvalidRequest, "%s (length of the phase in seconds) and %s (end of the phase in unix seconds) are both missing; pass one of them", phase.seconds, phase.deadline)
		}
		if at, ok := body[phase.deadline].(int64); ok {
			from = at // reveal_seconds counts from commit_deadline, and beacon_round from reveal_deadline
		}
	}
	id, _ := body["algorithm"].(string)
	params, isObject := body["algorithm_params"].(map[string]any)
	alg, known := algorithm.Lookup(id)
	if known && alg.NeedsBeacon && (isObject || body["algorithm_params"] == nil) && params["beacon_round"] == nil {
		params = maps.Clone(params)
		if params == nil {
			params = map[string]any{}
		}
		params["beacon_round"] = s.Chain.RoundAt(from) + 1
		body["algorithm_params"] = params
	}
	return body, nil
}
