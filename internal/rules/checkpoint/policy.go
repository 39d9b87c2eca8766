package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrQuorum is returned if a checkpoint's cosigners do not meet the policy's quorum.
var ErrQuorum = errors.New("the quorum of witnesses is not met")

// Policy says which logs a verifier accepts and which witnesses must cosign (c2sp.org/tlog-policy).
type Policy struct {
	Logs      []Key
	Witnesses []Witness
	quorum    *group // nil for "quorum none"
}

// Witness is a witness line of a policy. The name in Key may differ. URL is the submission prefix
// of c2sp.org/tlog-witness and may be empty.
type Witness struct {
	Name string
	Key  Key
	URL  string
}

// group is a group line, or a witness line, which has no members.
type group struct {
	name    string
	needs   int // how many members must be met; a witness is met if it cosigned, a group by its own `needs`
	members []*group
}

// MaxPolicy is the maximum size of a policy file in bytes. An ML-DSA-44 key takes 1.8 kB.
const MaxPolicy = 256 << 10

// ParsePolicy reads a policy file. An error about a line has the line number.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > MaxPolicy {
		return nil, fmt.Errorf("the policy is over %d bytes", MaxPolicy)
	}
	r := policyReader{policy: &Policy{}, named: map[string]*group{}, member: map[string]bool{}}
	for i, line := range strings.Split(string(text), "\n") {
		if err := r.line(line); err != nil {
			return nil, fmt.Errorf("policy line %d: %w", i+1, err)
		}
	}
	if !r.decided {
		return nil, errors.New("the policy has no quorum line: add \"quorum NAME\" or \"quorum none\"")
	}
	return r.policy, nil
}

type policyReader struct {
	policy  *Policy
	named   map[string]*group
	member  map[string]bool // names that are already in a group
	decided bool
}

func (r *policyReader) line(line string) error {
	for i := range len(line) {
		if c := line[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return fmt.Errorf("control character 0x%02x: only tabs and line feeds are allowed", c)
		}
	}
	fields := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	switch keyword, n := fields[0], len(fields); {
	case keyword == "log" && (n == 2 || n == 3): // fields[2], if present, is the log's URL and is not used
		return r.log(fields[1])
	case keyword == "witness" && (n == 3 || n == 4):
		return r.witness(fields[1], fields[2], strings.Join(fields[3:], ""))
	case keyword == "group" && n >= 4:
		return r.group(fields[1], fields[2], fields[3:])
	case keyword == "quorum" && n == 2:
		return r.quorum(fields[1])
	}
	return fmt.Errorf("malformed line %.40q: write \"log VKEY [URL]\", \"witness NAME VKEY [URL]\", \"group NAME all|any|K MEMBER…\" or \"quorum NAME|none\"", line)
}

func (r *policyReader) log(vkey string) error {
	key, err := ParseKey(vkey)
	if err != nil {
		return err
	}
	if key.kind != TypeEd25519 && key.kind != TypeECDSA {
		return fmt.Errorf("the log's key has type 0x%02x: give a key of type 0x01 (Ed25519) or 0x02 (P-256)", key.kind)
	}
	for _, other := range r.policy.Logs {
		if other.public == key.public {
			return errors.New("another log line has the same public key: list each key once")
		}
	}
	r.policy.Logs = append(r.policy.Logs, key)
	return nil
}

func (r *policyReader) witness(name, vkey, url string) error {
	key, err := ParseKey(vkey)
	if err != nil {
		return err
	}
	if key.kind != TypeCosignature && key.kind != TypeMLDSA {
		return fmt.Errorf("the witness's key has type 0x%02x: give a key of type 0x04 (Ed25519) or 0x06 (ML-DSA-44)", key.kind)
	}
	for _, w := range r.policy.Witnesses {
		if w.Key.public == key.public {
			return fmt.Errorf("witness %s on an earlier line has the same public key: list each key once", w.Name)
		}
	}
	if err := r.define(&group{name: name}); err != nil {
		return err
	}
	r.policy.Witnesses = append(r.policy.Witnesses, Witness{name, key, url})
	return nil
}

func (r *policyReader) group(name, threshold string, members []string) error {
	g := &group{name: name}
	for _, member := range members {
		of, defined := r.named[member]
		if !defined {
			return fmt.Errorf("group %q lists %q, which no earlier line defines: add a witness or group line with this name before this line", name, member)
		}
		if r.member[member] {
			return fmt.Errorf("%q is in a group already: list it in one group only", member)
		}
		r.member[member] = true
		g.members = append(g.members, of)
	}
	switch threshold {
	case "all":
		g.needs = len(members)
	case "any":
		g.needs = 1
	default:
		k, err := strconv.Atoi(threshold)
		if err != nil || k < 1 || k > len(members) || strconv.Itoa(k) != threshold {
			return fmt.Errorf("the threshold is %.20q: write \"all\", \"any\" or an integer of 1 to %d", threshold, len(members))
		}
		g.needs = k
	}
	return r.define(g)
}

func (r *policyReader) define(g *group) error {
	if g.name == "none" || r.named[g.name] != nil {
		return fmt.Errorf("the name %q is reserved or already used: use another one", g.name)
	}
	r.named[g.name] = g
	return nil
}

func (r *policyReader) quorum(name string) error {
	if r.decided {
		return errors.New("the policy already has a quorum line: keep one")
	}
	r.decided = true
	if name == "none" {
		return nil
	}
	if r.policy.quorum = r.named[name]; r.policy.quorum == nil {
		return fmt.Errorf("the quorum is %q, which no earlier line defines: add a witness or group line with this name before this line", name)
	}
	return nil
}

// Demands reports whether the policy demands any cosignature. It returns false for "quorum none".
func (p *Policy) Demands() bool { return p.quorum != nil }

// Met reports whether the named witnesses meet the quorum.
func (p *Policy) Met(cosigned map[string]bool) bool {
	return p.quorum == nil || p.quorum.met(cosigned)
}

func (g *group) met(cosigned map[string]bool) bool {
	if len(g.members) == 0 {
		return cosigned[g.name]
	}
	have := 0
	for _, member := range g.members {
		if member.met(cosigned) {
			have++
		}
	}
	return have >= g.needs
}

func (g *group) String() string {
	if len(g.members) == 0 {
		return g.name
	}
	names := make([]string, len(g.members))
	for i, member := range g.members {
		names[i] = member.String()
	}
	return fmt.Sprintf("%d of (%s)", g.needs, strings.Join(names, ", "))
}

// CosignedBefore is Verify, but ignores cosignatures of the policy's witnesses from the unix time `at` on.
func (p *Policy) CosignedBefore(signedNote []byte, at int64) (witnesses []string, err error) {
	text, lines, ok := strings.Cut(string(signedNote), "\n\n")
	if !ok {
		return nil, errors.New("not a signed note: no blank line before the signatures")
	}
	early := text + "\n\n"
	for line := range strings.Lines(lines) {
		if !slices.ContainsFunc(p.Witnesses, func(w Witness) bool { return w.Key.cosignedFrom(line, at) }) {
			early += line
		}
	}
	_, witnesses, err = p.Verify([]byte(early))
	return witnesses, err
}

// Verify checks that a log of the policy signed the checkpoint and that the quorum cosigned it.
// It returns the names of the cosigners even with ErrQuorum.
func (p *Policy) Verify(signedNote []byte) (c Checkpoint, witnesses []string, err error) {
	cosigners := make([]Key, len(p.Witnesses))
	for i, w := range p.Witnesses {
		cosigners[i] = w.Key
	}
	c, signed, err := Open(signedNote, p.Logs, cosigners)
	if err != nil {
		return c, nil, err
	}
	cosigned := map[string]bool{}
	for _, w := range p.Witnesses {
		for _, key := range signed {
			if key.vkey == w.Key.vkey {
				cosigned[w.Name] = true
				witnesses = append(witnesses, w.Name)
			}
		}
	}
	if !p.Met(cosigned) {
		return c, witnesses, fmt.Errorf("%w: [%s] cosigned, the policy demands %s", ErrQuorum, strings.Join(witnesses, ", "), p.quorum)
	}
	return c, witnesses, nil
}
