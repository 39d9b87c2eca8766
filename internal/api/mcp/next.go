package mcp

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	pact "github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// next is the step that an agent should take after a result. The agent replaces arguments
// such as <API_KEY> with its own values. An empty Tool means that nothing is left to call.
type next struct {
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
	Why       string         `json:"why"`
}

func (n next) text() string { return "NEXT: " + n.call() }

func (n next) call() string {
	if n.Tool == "" {
		return n.Why
	}
	arguments, err := web.Encode(n.Arguments)
	if err != nil {
		arguments = []byte("{}")
	}
	// The agent replaces these placeholders with a JSON object, so they must have no quotes.
	return n.Why + "\nCall " + n.Tool + " with " + strings.NewReplacer(`"`+yourInput+`"`, yourInput, `"`+yourDocument+`"`, yourDocument).Replace(string(arguments))
}

// The next steps are advice: no code of the service depends on them.

type fields = map[string]any

// Placeholders in the calls that NEXT blocks suggest. The texts in angle brackets stand for the agent's secrets and
// for values that the server does not know.
const (
	yourToken      = "<INVITE_TOKEN>"
	yourKey        = "<API_KEY>"
	yourDeal       = "<DEAL_ID>"
	yourCommitment = "<sha256:... of your input and salt>"
	yourInput      = "<the object that you committed to>"
	yourSalt       = "<the salt that you committed with>"
	yourDocument   = "<this certificate, as received>"
	strongSalt     = 32      // hex digits of 16 random bytes
	maxEchoed      = 1 << 10 // bytes; the next step does not repeat a longer input
	maxWait        = int(waiting.Longest / time.Second)
)

const examples = "Change the example's values to yours."

// exampleDeal has phases of 15 minutes, to leave time to hand over the tokens.
func exampleDeal() fields {
	return fields{
		"api_key": yourKey, "algorithm": "split.v1", "party_labels": []string{"you", "them"},
		"commit_seconds": 900, "reveal_seconds": 900,
		"algorithm_params": fields{"items": []string{"item-a", "item-b"}},
	}
}

func afterKey(escrow.NewKey) next {
	return next{"create_deal", exampleDeal(), "keep api_key: it is shown once, and it serves any number of deals. Then create a deal. " + examples +
		" If somebody invited you, you hold an invite_token and a deal_id and need no key: call get_deal."}
}

var afterCatalogue = next{"create_key", fields{}, "choose an algorithm and note its algorithm_params (for create_deal) and party_input (what each party commits to and reveals). If you have an API key, skip create_key and call create_deal."}

func afterCreation(req escrow.Declared, c escrow.Created, invited bool) next {
	handOver := "Send each of the other parties, over your own private channel, the address of this server, the deal_id and the party's token from invite_tokens"
	if invited {
		handOver = "The text blocks after this one are the invitations of the other parties, in party order. Each works for an agent and for a person. Send each party its invitation unchanged, over your own private channel. If the invitation has no link, add the address of this server"
	}
	signed := ""
	if slices.ContainsFunc(req.SeatKeys, func(key *string) bool { return key != nil }) {
		signed = "A party with a declared seat key must sign its commitment with that key (SEAT KEYS in the instructions). "
	}
	deadlines := "All parties must commit before commit_deadline" + left(c.CommitDeadline) + " and reveal before reveal_deadline" + left(c.RevealDeadline) + ". "
	warned := ""
	if c.Warning != "" {
		warned = "READ `warning` FIRST: it says what is odd about this deal. "
	}
	var own *string
	if len(req.SeatKeys) > 0 {
		own = req.SeatKeys[0]
	}
	return commit(req.Algorithm, c.DealID, own, warned+required(req.Seals)+"keep this answer: tokens are shown once. <INVITE_TOKEN> below stands for your token, invite_tokens[0].token. "+handOver+". Whoever holds a party's token can act as that party. "+
		deadlines+signed+"You are party 0: ")
}

// commit returns the step of a party that has not committed. `key` is the seat key that the deal
// declares for the party, or nil.
func commit(algorithmID, dealID string, key *string, why string) next {
	arguments := fields{"deal_id": dealID, "invite_token": yourToken, "commitment": yourCommitment}
	why += fmt.Sprintf("decide on your input, in the form of %s. Choose a salt of 16 random bytes, written as %d hex digits. Keep input and salt secret until you reveal. "+
		"The commitment is the SHA-256 of the input as canonical JSON, followed directly by the salt as text. Compute it locally or with compute_commitment_tool. Then ", inputOf(algorithmID), strongSalt)
	if key != nil {
		return next{"compute_commitment_tool", arguments, why + "call compute_commitment_tool with the commitment, as below. The answer has the member `to_sign`, a text. Sign its UTF-8 bytes locally with your seat key, and call commit_input with commitment, party_key and party_signature."}
	}
	return next{"commit_input", arguments, why + "commit to deal " + dealID + "."}
}

// inputOf returns the form of a party input and what its members mean. It never quotes the
// deal's labels or items, because a hostile party may have written them.
func inputOf(algorithmID string) string {
	a, ok := algorithm.Lookup(algorithmID)
	if !ok {
		return "the party_input of list_algorithms"
	}
	text := cmp.Or(a.InputForm, string(a.Input.Example))
	for _, name := range slices.Sorted(maps.Keys(a.Input.Members)) {
		text += "; " + name + ": " + a.Input.Members[name]
	}
	return text
}

// afterHash returns the step after compute_commitment_tool with an input. dealID is nil if the
// caller named no deal. `key` is as in commit.
func afterHash(req escrow.Opening, dealID any, key *string, commitment string) next {
	if len(req.Salt) < strongSalt {
		var input any = req.Input
		if len(canon.Encode(input)) > maxEchoed {
			input = "<the same input object>"
		}
		salt := make([]byte, strongSalt/2)
		_, _ = rand.Read(salt)
		arguments := fields{"input": input, "salt": hex.EncodeToString(salt)}
		if dealID != nil {
			arguments["deal_id"], arguments["invite_token"] = dealID, yourToken
		}
		return next{"compute_commitment_tool", arguments,
			"this commitment has no salt or a short salt: whoever sees the commitment may guess your input before you reveal. Do not use this commitment. Hash again with a salt of 16 random bytes, such as the salt below, and keep the salt: you cannot reveal without it."}
	}
	const keep = "keep input and salt exactly as they are: reveal_input needs both, and nobody can recover them. Then "
	if key != nil {
		step := afterToSign(dealID, key, commitment)
		step.Why = keep + step.Why
		return step
	}
	return next{"commit_input", fields{"deal_id": cmp.Or(dealID, any(yourDeal)), "invite_token": yourToken, "commitment": commitment}, keep + "commit."}
}

// afterToSign returns the step after compute_commitment_tool returned to_sign.
func afterToSign(dealID any, key *string, commitment string) next {
	partyKey, unkeyed := "<ed25519:... or es256:...>", " Leave party_key and party_signature out if you have no seat key."
	if key != nil {
		partyKey, unkeyed = *key, ""
	}
	return next{"commit_input", fields{"deal_id": dealID, "invite_token": yourToken, "commitment": commitment, "party_key": partyKey, "party_signature": "<signature of to_sign>"},
		"sign the UTF-8 bytes of to_sign, including the last line feed, locally with your private key, and commit." + unkeyed}
}

func afterCommit(c escrow.Committed) next {
	if c.OpensAt > 0 {
		return poll(c.DealID, true, c.State, fmt.Sprintf("you are done: your seal opens by itself from %d on (in %d s), and the service computes the result. Keep input, salt, seal and receipt. End your turn, and make this call after that time.", c.OpensAt, max(c.OpensAt-time.Now().Unix(), 0)))
	}
	if c.State == deal.Revealing {
		return reveal(c.DealID, "all have committed. Reveal before reveal_deadline.")
	}
	return poll(c.DealID, true, c.State, "you have committed, and others have not yet. Wait until state is REVEALING, then call reveal_input before reveal_deadline: a party that commits and does not reveal is named a flaker.")
}

func reveal(dealID, why string) next {
	return next{"reveal_input", fields{"deal_id": dealID, "invite_token": yourToken, "input": yourInput, "salt": yourSalt}, why}
}

// poll returns the step to call get_deal and wait until the deal leaves the state `since`. `party`
// is true if the caller has an invite token, and false if the caller has an API key.
func poll(dealID string, party bool, since deal.State, why string) next {
	arguments := fields{"deal_id": dealID, "wait_seconds": maxWait, "since": since, "api_key": yourKey}
	if party {
		delete(arguments, "api_key")
		arguments["invite_token"] = yourToken
	}
	return next{"get_deal", arguments, why + " This call waits up to wait_seconds until the state changes or the certificate is published. If neither has happened, repeat the call."}
}

func certificate(dealID, why string) next {
	return next{"get_certificate", fields{"deal_id": dealID, "invite_token": yourToken, "wait_seconds": maxWait}, why}
}

func afterReveal(r escrow.Revealed, beacon bool) next {
	switch r.State {
	case deal.Computed, deal.Certified:
		return certificate(r.DealID, "all have revealed and the result is final. Fetch the signed certificate.")
	case deal.Void:
		return certificate(r.DealID, "the deal is VOID. The certificate names the parties that caused this.")
	}
	if beacon {
		return certificate(r.DealID, "you have revealed. This call waits for the other reveals and for the beacon round, and makes the draw as soon as the round is published. If the call returns CERT_NOT_READY, repeat it at the time in that error.")
	}
	return poll(r.DealID, true, r.State, "you have revealed; the deal has not ended. Wait until state is COMPUTED, CERTIFIED or VOID.")
}

func afterView(party int, v escrow.View) next {
	dealID, parties := v.DealID, len(v.Parts)
	initiator := party < 0
	who := "You asked with the initiator's API key. "
	if !initiator {
		who = fmt.Sprintf("You are party %d. ", party)
	}
	committed := func(i int) bool { return v.Parts[i].Commitment != nil }
	revealed := func(i int) bool { return v.Parts[i].Revealed }
	switch v.State {
	case deal.Open, deal.Committing:
		if !initiator && !committed(party) {
			return commit(v.Algorithm, dealID, v.SeatKey(party), who+cautions(v.Deal)+seatKeys(v.Deal, party)+required(v.Seals)+"You have to commit before commit_deadline"+left(v.CommitDeadline)+": ")
		}
		return poll(dealID, !initiator, v.State, who+"Wait until state is REVEALING: "+missing(parties, committed)+" must commit before commit_deadline"+left(v.CommitDeadline)+".")
	case deal.Revealing:
		waiting := missing(parties, revealed)
		switch {
		case !initiator && !revealed(party) && v.Pending > 0:
			return poll(dealID, true, v.State, fmt.Sprintf("%sAll have committed. If you sealed your input, it opens by itself from %d on (in %d s): come back then. You can call reveal_input earlier. If you did not seal, call reveal_input before reveal_deadline%s.", who, v.SealTime, max(v.SealTime-time.Now().Unix(), 0), left(v.RevealDeadline)))
		case !initiator && !revealed(party):
			return reveal(dealID, who+"All have committed. Reveal before reveal_deadline"+left(v.RevealDeadline)+".")
		case waiting != "":
			return poll(dealID, !initiator, v.State, who+"The deal waits for "+waiting+" to reveal before reveal_deadline"+left(v.RevealDeadline)+".")
		case initiator:
			return poll(dealID, !initiator, v.State, who+"All have revealed. Once the beacon round is published, the first party that calls get_certificate makes the draw. If no party calls, the service makes the draw "+map[bool]string{true: "at once", false: "a minute later"}[v.SealTime != 0]+".")
		}
		return certificate(dealID, who+"All have revealed. This call waits for the beacon round and makes the draw as soon as the round is published. If the call returns CERT_NOT_READY, repeat it at the time in that error.")
	case deal.Expired, deal.Cancelled:
		return next{"create_deal", exampleDeal(), "the deal is " + string(v.State) + " and has no certificate. Create a new deal if there is still something to settle. " + examples}
	}
	if initiator && v.CertificateID != nil {
		return next{"verify_certificate", fields{"cert_id": *v.CertificateID}, who + "The deal has ended. Parties fetch the certificate with get_certificate and their invite token; anyone who gets it can check its signature and log proof."}
	}
	if initiator {
		return poll(dealID, !initiator, v.State, who+"The deal has ended and its certificate is being issued: wait until certificate_id is set.")
	}
	return certificate(dealID, who+"The deal has ended. Fetch the signed certificate.")
}

func required(seals string) string {
	if seals == "" {
		return ""
	}
	return "This deal takes no commitment without a seal (ACT ONCE in the instructions): pass `seal` to commit_input, and you are done. "
}

func cautions(d *escrow.Deal) string {
	if all := d.Cautions(); len(all) > 0 {
		return "CAUTION, before you commit: " + strings.Join(all, ". ") + ". "
	}
	return ""
}

func seatKeys(d *escrow.Deal, party int) string {
	var others []string
	for i := range d.Labels {
		if key := d.SeatKey(i); key != nil && i != party {
			others = append(others, fmt.Sprintf("party %d: %s", i, *key))
		}
	}
	text := ""
	if own := d.SeatKey(party); own != nil {
		text = fmt.Sprintf("The initiator declared the seat key %s for you: you must sign your commitment with that key (SEAT KEYS in the instructions). If the key is not yours, stop and ask for a new deal. ", *own)
	}
	if len(others) > 0 {
		text += fmt.Sprintf("Seat keys are declared for %d others (%s): compare them with the keys that those parties gave you. ", len(others), problem.List(others, "%s", "; "))
	}
	return text
}

// missing returns a text such as "parties 1, 2" about the parties that have not acted, or "" if all have acted.
func missing(parties int, acted func(int) bool) string {
	var names []int
	for i := range parties {
		if !acted(i) {
			names = append(names, i)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("party %d", names[0])
	}
	return "parties " + problem.List(names, "%d", ", ")
}

func left(deadline int64) string {
	return fmt.Sprintf(" (%d, in %d s)", deadline, max(deadline-time.Now().Unix(), 0))
}

func afterCertificate(c escrow.Issued) next {
	why := `Keep the certificate as it is: any added member breaks its signature. The member "result" says what was settled.`
	if c.Outcome == pact.Void {
		why = "Keep the certificate as it is: any added member breaks its signature. The deal is VOID, so nothing was settled. The member void_flakers lists the parties that caused this."
	}
	return next{"verify_certificate", fields{"certificate": yourDocument}, "check this document: with cert_id alone, the call would check only what the service stored. It needs no credential. " + why}
}

const aboutBundle = " Save the bundle, the last text block. If the bundle has no log_proof, its proof is incomplete: fetch the bundle again later. If the log has witnesses and get_deal still shows COMPUTED, fetch the bundle again once the state is CERTIFIED. When you call verify_certificate, pass only the bundle's member `certificate`, not the whole bundle. If the bundle has openings, the inputs and salts of all parties, it proves the result and is as private as they are. Otherwise, to have your input checked too, add the members `input` and `salt` to own_input, but only in your own copy."

func afterSubmitted(h escrow.SubmittedReport) next {
	if !h.Valid {
		return next{Why: `do not rely on this document. The member "note" gives the reason. The members "outcome" and "says" are claims of the document, not facts. Ask a party of the deal for the true certificate: the party gets it with get_certificate. There is nothing left to call.`}
	}
	return afterVerification(h.Verification)
}

func afterVerification(r escrow.Verification) next {
	if !r.Valid {
		return next{Why: "do not rely on this certificate, and tell the operator of this deployment. There is nothing left to call."}
	}
	return next{Why: `done, there is nothing left to call. Give the whole certificate or the bundle to everybody who should check the outcome: a cert_id alone shows no result. This answer is the operator's word about itself. To check the certificate offline, call get_certificate with "bundle":true; verifiers say which claims the bundle proves, and whether the result is one of them.`}
}
