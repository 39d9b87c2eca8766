package mcpapi

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	pact "github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/waiting"
)

// The next steps below are advice made of a result. They decide nothing.

type fields = map[string]any

// What stands for a value that the server does not know.
const (
	yourToken      = "<INVITE_TOKEN>"
	yourDeal       = "<DEAL_ID>"
	yourCommitment = "<sha256:... of your input and salt>"
	yourSalt       = "<the salt that you committed with>"
	strongSalt     = 32      // hex digits of 16 random bytes
	maxEchoed      = 1 << 10 // bytes of an input that is said back
	maxWait        = int(waiting.Longest / time.Second)
)

const examples = "Change the example's values to yours."

// exampleDeal leaves time to hand over the tokens.
func exampleDeal(key string) fields {
	return fields{
		"api_key": key, "algorithm": "split.v1", "party_labels": []string{"you", "them"},
		"commit_seconds": 900, "reveal_seconds": 900,
		"algorithm_params": fields{"items": []string{"item-a", "item-b"}},
	}
}

func afterKey(k escrow.NewKey) next {
	return next{"create_deal", exampleDeal(k.APIKey), "keep api_key: it is shown once, and it serves any number of deals. Create the deal. " + examples +
		" If somebody invited you (you hold an invite_token and a deal_id) you need no key: call get_deal."}
}

func afterCatalogue() next {
	return next{"create_key", fields{}, "choose an algorithm and note its algorithm_params (for create_deal) and party_input (for commit and reveal). If you have an API key, go on to create_deal."}
}

func afterCreation(req escrow.Declared, c escrow.Created, invited bool) next {
	n := next{Tool: "commit_input", Arguments: fields{"deal_id": c.DealID, "invite_token": c.Invites[0].Token, "commitment": yourCommitment}}
	handOver := "Give each other party, by a channel of yours, the address of this server, the deal_id and its own token of invite_tokens"
	if invited {
		handOver = "The text blocks after this one are the invitations of the other parties, in party order, for an agent or a person: send each party its own as it is, by a channel of yours; add the address of this server where the text has no link"
	}
	n.Why = "keep this answer: tokens are shown once. " + handOver + "; whoever holds a token acts as that party. " +
		"get_deal shows the deadlines. " + signedSeats(req) +
		"You are party 0: " + howToCommit(req.Algorithm, c.DealID)
	return n
}

// signedSeats says what a creator should know of the seat keys that it declared.
func signedSeats(req escrow.Declared) string {
	for _, key := range req.PartyKeys {
		if key != nil {
			return "A party with a declared key commits only with a signature by it (SEAT KEYS in the instructions). "
		}
	}
	return ""
}

// howToCommit tells how a commitment comes about.
func howToCommit(algorithmID, dealID string) string {
	return fmt.Sprintf("decide on your input, e.g. %s. Decide on a salt of 16 random bytes as %d hex digits; keep both secret until you reveal. "+
		"Hash them where you are (sha256 of the canonical JSON of the input followed by the salt) or with compute_commitment_tool; then commit to deal %s.", inputOf(algorithmID), strongSalt, dealID)
}

// inputOf is an example party input. Labels and items are words of other
// parties, who may be hostile: none of them stands in the server's advice.
func inputOf(algorithmID string) string {
	a, ok := algorithm.Lookup(algorithmID)
	if !ok {
		return "the party_input of list_algorithms"
	}
	text := string(a.Input.Example)
	for _, name := range slices.Sorted(maps.Keys(a.Input.Members)) {
		text += "; " + name + " is " + a.Input.Members[name]
	}
	return text
}

func freshHex(bytes int) string {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func afterHash(req escrow.Opening, commitment string) next {
	if len(req.Salt) < strongSalt {
		var input any = req.Input
		if len(canon.Encode(input)) > maxEchoed {
			input = "<the same input object>"
		}
		return next{"compute_commitment_tool", fields{"input": input, "salt": freshHex(strongSalt / 2)},
			"this commitment has no salt, or a short one: whoever sees it can guess a guessable input before you reveal. Do not commit to it; hash again with a salt of 16 random bytes (here is one), and keep the salt: you cannot reveal without it."}
	}
	return next{"commit_input", fields{"deal_id": yourDeal, "invite_token": yourToken, "commitment": commitment},
		"keep input and salt exactly as they are: reveal_input needs both, and nobody can recover them. Then commit."}
}

// afterToSign follows a commitment that was handed in to learn what to sign.
func afterToSign(args arguments, commitment string) next {
	return next{"commit_input", fields{"deal_id": args["deal_id"], "invite_token": args["invite_token"], "commitment": commitment, "party_key": "<ed25519:... or es256:...>", "party_signature": "<signature of to_sign>"},
		"sign the UTF-8 bytes of to_sign with your private key where you are, its last line feed included, then commit. Leave party_key and party_signature out if you have no seat key."}
}

func afterCommit(token string, c escrow.Committed) next {
	if c.State == deal.Revealing {
		return reveal(c.DealID, token, "all have committed. Reveal before reveal_deadline.")
	}
	return poll(c.DealID, "invite_token", token, c.State, "you have committed; the others have not all. Wait until state is REVEALING, then call reveal_input before reveal_deadline: who commits and does not reveal is named a flaker.")
}

func reveal(dealID, token, why string) next {
	return next{"reveal_input", fields{"deal_id": dealID, "invite_token": token, "input": fields{"<member>": "<the input object that you committed to>"}, "salt": yourSalt}, why}
}

// poll waits for the deal to leave a state.
func poll(dealID, credentialName, credential string, since deal.State, why string) next {
	return next{"get_deal", fields{"deal_id": dealID, credentialName: credential, "wait_seconds": maxWait, "since": since},
		why + " This call answers when the state has changed; where it answers that nothing has, make it again."}
}

func certificate(dealID, token, why string) next {
	return next{"get_certificate", fields{"deal_id": dealID, "invite_token": token, "wait_seconds": maxWait}, why}
}

func afterReveal(token string, r escrow.Revealed) next {
	switch r.State {
	case deal.Computed, deal.Certified:
		return certificate(r.DealID, token, "all have revealed and result is final. Fetch the signed certificate.")
	case deal.Void:
		return certificate(r.DealID, token, "the deal is VOID. Its certificate names who caused that.")
	}
	return poll(r.DealID, "invite_token", token, r.State, "you have revealed; the deal has not ended. Wait until state is COMPUTED, CERTIFIED or VOID. A deal with a beacon_round waits for you once all have revealed: get_certificate draws it.")
}

func afterView(credential string, party int, v escrow.View) next {
	dealID, parties := v.DealID, len(v.Parts)
	initiator := party < 0
	who, name := "You asked with the initiator's API key. ", "api_key"
	if !initiator {
		who, name = fmt.Sprintf("You are party %d. ", party), "invite_token"
	}
	committed := func(i int) bool { return v.Parts[i].Commitment != nil }
	revealed := func(i int) bool { return v.Parts[i].Revealed }
	switch v.State {
	case deal.Open, deal.Committing:
		if !initiator && !committed(party) {
			return next{"commit_input", fields{"deal_id": dealID, "invite_token": credential, "commitment": yourCommitment},
				who + cautions(v.Deal) + seatKeys(v.Deal, party) + "You have to commit before commit_deadline" + left(v.CommitDeadline) + ": " + howToCommit(v.Algorithm, dealID)}
		}
		return poll(dealID, name, credential, v.State, who+"Wait until state is REVEALING: "+missing(parties, committed)+" must commit by commit_deadline"+left(v.CommitDeadline)+".")
	case deal.Revealing:
		waiting := missing(parties, revealed)
		switch {
		case !initiator && !revealed(party):
			return reveal(dealID, credential, who+"All have committed. Reveal before reveal_deadline"+left(v.RevealDeadline)+".")
		case waiting != "":
			return poll(dealID, name, credential, v.State, who+"The deal waits for "+waiting+" to reveal by reveal_deadline"+left(v.RevealDeadline)+".")
		case initiator:
			return poll(dealID, name, credential, v.State, who+"All have revealed. The draw is made once the beacon round is out: by the first party that calls get_certificate, or by the service a minute later.")
		}
		return certificate(dealID, credential, who+"All have revealed. This call waits for the beacon round and draws as soon as it is out; where it says CERT_NOT_READY, call it again when that says.")
	case deal.Expired, deal.Cancelled:
		return next{"create_deal", exampleDeal("<API_KEY>"), "the deal is " + string(v.State) + " and has no certificate. Create a new deal if there is still something to settle. " + examples}
	}
	if initiator && v.CertificateID != nil {
		return next{"verify_certificate", fields{"cert_id": *v.CertificateID}, who + "The deal has ended. Parties fetch the certificate with get_certificate and their invite token; anyone can verify it."}
	}
	if initiator {
		return poll(dealID, name, credential, v.State, who+"The deal has ended and its certificate is being issued: wait until certificate_id is there.")
	}
	return certificate(dealID, credential, who+"The deal has ended. Fetch the signed certificate.")
}

// cautions says what to know of a deal before committing to it.
func cautions(d *escrow.Deal) string {
	if all := d.Cautions(); len(all) > 0 {
		return "CAUTION, before you commit: " + strings.Join(all, ". ") + ". "
	}
	return ""
}

// seatKeys says whose commitments must be signed, before a party commits.
func seatKeys(d *escrow.Deal, party int) string {
	var others []string
	count := 0
	for i := range d.Labels {
		if key := d.SeatKey(i); key != nil && i != party {
			if count++; count <= 8 {
				others = append(others, fmt.Sprintf("party %d: %s", i, *key))
			}
		}
	}
	text := ""
	if own := d.SeatKey(party); own != nil {
		text = fmt.Sprintf("The initiator declared the seat key %s for you, and only a commitment that it signs is taken (SEAT KEYS in the instructions). If that is not your key, do not go on: ask for a new deal. ", *own)
	}
	if count > 0 {
		text += fmt.Sprintf("Seat keys are declared for %d others (%s): compare them with what you know. ", count, strings.Join(others, "; "))
	}
	return text
}

// missing names the parties that have not acted, at most a few of them.
func missing(parties int, acted func(int) bool) string {
	var names []string
	count := 0
	for i := range parties {
		if acted(i) {
			continue
		}
		if count++; count <= 8 {
			names = append(names, fmt.Sprint(i))
		}
	}
	switch {
	case count == 0:
		return ""
	case count == 1:
		return "party " + names[0]
	case count > len(names):
		return fmt.Sprintf("%d parties (%s, ...)", count, strings.Join(names, ", "))
	}
	return "parties " + strings.Join(names, ", ")
}

// left is a deadline and how far off it is.
func left(deadline int64) string {
	return fmt.Sprintf(" (%d, in %d s)", deadline, max(deadline-time.Now().Unix(), 0))
}

func afterCertificate(c escrow.Issued) next {
	why := "keep the certificate as it is: any added member breaks its signature. result is what was settled."
	if c.Outcome == pact.Void {
		why = "keep the certificate as it is: any added member breaks its signature. The deal is VOID: void_flakers are the parties that caused it, and nothing was settled."
	}
	return next{"verify_certificate", fields{"cert_id": c.CertID}, why + " Anyone can verify it, you first."}
}

// aboutBundle follows what is next after a certificate with its bundle.
const aboutBundle = " Save the bundle, the last text block. Fetch it again once get_deal shows CERTIFIED, where witnesses cosign the log, or where it has no log_proof. It holds no input: to have yours checked too, add the members input and salt to its own_input, in your copy alone."

func afterVerification(r escrow.Verification) next {
	if !r.Valid {
		return next{Why: "do not rely on this certificate, and tell the operator of this deployment. There is nothing left to call."}
	}
	return next{Why: "done, there is nothing left to call. Give the cert_id to whoever should check it. To trust nobody, check the certificate yourself against the key of GET /v1/status and the head of GET /v1/log/tree-head."}
}
