package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func report(r *results) string {
	w := &writer{s: r.Samples}
	w.line("# What a deal costs\n")
	w.line("`make bench` writes this file. A value is the median of the rounds. Some cells also show the smallest and the largest value, in parentheses.")
	w.line("A ratio `a : b` is computed in each round; the report shows the median. [README.md](README.md) says how each value is measured.")
	w.line("The load generator, the services and Postgres share the cores. The load generator verifies every certificate.\n")
	w.line("![deals per second of the product and of the floor](report.svg)\n")
	w.provenance(r)
	w.targets()
	w.deals()
	w.cpu()
	w.calls()
	w.statements(r)
	w.log()
	w.reads()
	w.seals()
	w.draw()
	w.memory()
	w.curve()
	return w.text.String()
}

type writer struct {
	text strings.Builder
	s    samples
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

func (w *writer) table(title string, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w.line("## %s\n", title)
	w.line("| %s |", strings.Join(head, " | "))
	w.line("|---%s|", strings.Repeat("|---:", len(head)-1))
	for _, row := range rows {
		w.line("| %s |", strings.Join(row, " | "))
	}
	w.line("")
}

func (w *writer) has(name string) bool { return len(w.s[name]) > 0 }

func (w *writer) m(name string) string {
	if !w.has(name) {
		return "–"
	}
	return number(w.s.median(name))
}

func (w *writer) spread(name string) string {
	if len(w.s[name]) < 2 {
		return w.m(name)
	}
	return fmt.Sprintf("%s (%s to %s)", w.m(name), number(slices.Min(w.s[name])), number(w.s.max(name)))
}

func (w *writer) ratio(a, b string) string {
	if !w.has(a) || !w.has(b) {
		return "–"
	}
	return number(w.s.ratio(a, b))
}

func clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

func (w *writer) percentiles(name string) string {
	return w.m(name+".p50_ms") + " / " + w.m(name+".p99_ms")
}

// number formats a value with three significant digits and at most four decimals.
func number(v float64) string {
	if v == 0 || math.Abs(v) >= 1000 {
		return thousands(int64(math.Round(v)))
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}

func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func (w *writer) provenance(r *results) {
	var rows [][]string
	for _, part := range allParts {
		if p, found := r.Parts[part]; found {
			rows = append(rows, []string{part, p.Commit, p.Time, strconv.Itoa(p.Rounds), strconv.Itoa(p.Seconds), thousands(int64(p.Finished))})
		}
	}
	w.table("Runs", []string{"part", "commit", "UTC", "rounds", "seconds per measurement", "ended deals before the run"}, rows)
	for _, part := range allParts {
		if p, found := r.Parts[part]; found {
			w.line("%s. %s.\n", p.Machine, p.Postgres)
			return
		}
	}
}

const (
	atMost  = "at most"
	atLeast = "at least"
)

var firstNumbers = regexp.MustCompile(`[0-9][0-9,.]*`)

// met compares the numbers of a measured value with those of its target: "2.05 / 15.1" meets "8 / 16".
// A value that was not measured misses its target.
func met(measured, target string, atMost bool) bool {
	values, limits := firstNumbers.FindAllString(measured, -1), firstNumbers.FindAllString(target, -1)
	for i, value := range values {
		v, err := strconv.ParseFloat(strings.ReplaceAll(value, ",", ""), 64)
		limit, wrong := strconv.ParseFloat(strings.Trim(strings.ReplaceAll(limits[i], ",", ""), "."), 64)
		if err != nil || wrong != nil || atMost && v > limit || !atMost && v < limit {
			return false
		}
	}
	return len(values) > 0
}

func (w *writer) targets() {
	s := w.s
	rows := [][]string{
		{"deals per second : pgbench INSERTs per second, 64 clients", w.ratio("deals.64.per_second", "insert.64.per_second"), "0.05, ideally 0.08", atLeast},
		{"CPU time per deal without the load generator, 64 clients, ms", number(s.median("deals.64.cpu_us") / 1000), "2.5, ideally 1.5", atMost},
		{"statements per deal, 64 clients / 1 client", w.m("count.64.statements") + " / " + w.m("count.1.statements"), "8 / 16", atMost},
		{"latency of a deal, 1 client, p50 ms", w.m("deals.1.deal.p50_ms"), "about 6", atMost},
		{"latency of a deal : latency of an INSERT, 1 client", w.ratio("deals.1.deal.p50_ms", "insert.1.ms"), "30", atMost},
		{"appends with verified proof per second, 64 clients", w.m("log.proof.per_second"), "2,500, ideally 4,000", atLeast},
		{"p50 of an append with verified proof : p50 of Tessera at the default interval", w.ratio("log.proof.append.p50_ms", tesseraName(tesseraIntervals[0])+".append.p50_ms"), "0.1", atMost},
		{"verify reads per second : pairs of P-256 verifications per second", w.ratio("read.verify.per_second", "p256_pairs.per_second"), "0.5", atLeast},
		{"certificate reads per second", w.m("read.certificate.per_second"), "6,000", atLeast},
		{"deal view reads per second", w.m("read.deal view.per_second"), "10,000", atLeast},
		{"time of the draw's commits and reveals : time of as many guarded INSERTs", w.ratio("guarded.per_second", "draw.per_second"), "4", atMost},
		{"deal-api's peak memory in the draw, MiB", w.m("draw.peak_mib"), "286 (300 MB)", atMost},
	}
	missed := 0
	for i, row := range rows {
		verdict := "met"
		if !met(row[1], row[2], row[3] == atMost) {
			verdict = "**missed**"
			missed++
		}
		rows[i][3] = verdict
	}
	w.table("Targets", []string{"what", "measured", "target", "verdict"}, rows)
	w.line("%d of %d targets are missed.\n", missed, len(rows))
}

func (w *writer) deals() {
	rows := [][]string{
		{"pgbench INSERT", "1", w.spread("insert.1.per_second"), "–", w.m("insert.1.ms"), "–"},
		{"pgbench INSERT", "64", w.spread("insert.64.per_second"), "1", w.m("insert.64.ms"), "–"},
	}
	add := func(what, name string, n int) {
		rows = append(rows, []string{what, strconv.Itoa(n), w.spread(name + ".per_second"),
			w.ratio(name+".per_second", "insert.64.per_second"), w.m(name + ".deal.p50_ms"), w.m(name + ".deal.p99_ms")})
	}
	add("floor", floorName, 64)
	for _, n := range clientCounts {
		add("product", "deals."+strconv.Itoa(n), n)
	}
	w.table("Deals and INSERTs per second", []string{"what", "clients", "per second", "ratio to INSERT, 64 clients", "p50 ms", "p99 ms"}, rows)
}

func (w *writer) cpu() {
	processes := append(slices.Clone(measured), floorDeals, floorLog, generator)
	var rows [][]string
	add := func(what, name string) {
		row := []string{what, w.spread(name + ".cpu_us")}
		for _, process := range processes {
			row = append(row, w.m(name+".cpu_us."+process))
		}
		rows = append(rows, append(row, w.spread(name+".others_percent")))
	}
	for _, n := range clientCounts {
		add("product, "+clients(n), "deals."+strconv.Itoa(n))
	}
	add("floor, 64 clients", floorName)
	w.table("CPU time per deal, µs", append(append([]string{"what", "sum without the load generator"}, processes...), "other processes, % of the cores"), rows)
}

func (w *writer) calls() {
	head := []string{"call"}
	for _, n := range clientCounts {
		head = append(head, clients(n))
	}
	var rows [][]string
	for _, call := range append(slices.Clone(dealCalls), "deal") {
		row := []string{call}
		for _, n := range clientCounts {
			row = append(row, w.percentiles(fmt.Sprintf("deals.%d.%s", n, call)))
		}
		rows = append(rows, row)
	}
	w.table("Latency of each call, p50 / p99 ms", head, rows)
}

func (w *writer) statements(r *results) {
	var rows [][]string
	for _, count := range []string{"statements", "round_trips"} {
		for _, service := range services {
			suffix := "." + count + "." + service
			rows = append(rows, []string{strings.ReplaceAll(count, "_", " ") + " of " + service, w.m("count.1" + suffix), w.m("count.64" + suffix)})
		}
		rows = append(rows, []string{"**" + strings.ReplaceAll(count, "_", " ") + "**", w.m("count.1." + count), w.m("count.64." + count)})
	}
	rows = append(rows,
		[]string{"time in statements, µs", w.m("count.1.exec_us"), w.m("count.64.exec_us")})
	if w.has("count.64.statements") {
		w.table("Statements and client round trips per deal", []string{"what", "1 client", "64 clients"}, rows)
	}
	rows = nil
	for _, top := range r.Statements["64"] {
		rows = append(rows, []string{shorten(top.Query), top.Service, number(top.Calls), number(top.ExecUS)})
	}
	w.table("Costliest statements, 64 clients", []string{"statement", "service", "calls per deal", "µs per deal"}, rows)
}

const maxShown = 110

func shorten(query string) string {
	text := []rune(strings.ReplaceAll(query, "|", "\\|"))
	if len(text) > maxShown {
		text = append(text[:maxShown], '…')
	}
	return "`" + string(text) + "`"
}

func (w *writer) log() {
	var rows [][]string
	add := func(what, name string) {
		rows = append(rows, []string{what, w.spread(name + ".per_second"), w.m(name + ".append.p50_ms"), w.m(name + ".append.p99_ms"),
			w.m(name + ".cpu_us." + localstack.LogServer), w.m(name + ".cpu_us." + postgres)})
	}
	add("append with signed head", "log.head")
	add("append with verified proof", "log.proof")
	for _, interval := range tesseraIntervals {
		add(fmt.Sprintf("Tessera, POSIX driver, checkpoint every %s", interval), tesseraName(interval))
	}
	w.table("The log alone, 64 clients", []string{"what", "per second", "p50 ms", "p99 ms", "log-server µs", "Postgres µs"}, rows)
}

func (w *writer) reads() {
	rows := [][]string{{"limit: pairs of P-256 verifications on all cores", w.spread("p256_pairs.per_second"), "1", "–", "–"}}
	for _, kind := range readKinds {
		name := "read." + kind
		rows = append(rows, []string{kind, w.spread(name + ".per_second"), w.ratio(name+".per_second", "p256_pairs.per_second"),
			w.percentiles(name + ".call"), w.m(name + ".cpu_us")})
	}
	w.table("Reads, 64 clients", []string{"what", "per second", "ratio to limit", "p50 / p99 ms", "CPU µs per read"}, rows)
}

func (w *writer) seals() {
	if !w.has("seals.deals") {
		return
	}
	var rows [][]string
	row := func(what string, value func(suffix string) string) {
		cells := []string{what, value("per_second"), value("cpu_us")}
		for _, process := range services {
			cells = append(cells, value("cpu_us."+process))
		}
		rows = append(rows, append(cells, value("cpu_us."+postgres)))
	}
	for _, phase := range sealPhases {
		row(phase, func(suffix string) string { return w.m("seals." + phase + "." + suffix) })
	}
	row("**deal with seals**", func(suffix string) string {
		sum := 0.0
		for _, phase := range sealPhases {
			if value := w.s.median("seals." + phase + "." + suffix); suffix == "per_second" {
				sum += 1 / value
			} else {
				sum += value
			}
		}
		if suffix == "per_second" {
			sum = 1 / sum
		}
		return number(sum)
	})
	row("**deal without seals**", func(suffix string) string { return w.m("seals.without." + suffix) })
	w.table(fmt.Sprintf("%s deals with seals, 64 clients, CPU µs per deal", w.m("seals.deals")),
		append(append([]string{"what", "per second", "sum without the load generator"}, services...), postgres), rows)
}

func (w *writer) draw() {
	if !w.has("draw.parties") {
		return
	}
	parties := w.s.median("draw.parties")
	w.table(fmt.Sprintf("A draw of %s parties, 64 clients", number(parties)), []string{"what", "value"}, [][]string{
		{number(2*parties) + " commits and reveals, s", w.m("draw.calls_s")},
		{"commits and reveals per second", w.m("draw.per_second")},
		{"guarded INSERTs per second by pgbench", w.m("guarded.per_second")},
		{"create, ms", w.m("draw.create_ms")},
		{"commit, p50 / p99 ms", w.percentiles("draw.commit")},
		{"reveal, p50 / p99 ms", w.percentiles("draw.reveal")},
		{"entropy and certificate, ms", w.m("draw.ending_ms")},
		{"whole deal, s", w.m("draw.total_s")},
		{"CPU µs per call", w.m("draw.cpu_us")},
		{"peak memory of deal-api, MiB", w.m("draw.peak_mib")},
	})
}

func (w *writer) memory() {
	var rows [][]string
	for _, name := range append(slices.Clone(services), redis) {
		if w.has("memory.rest." + name) {
			rows = append(rows, []string{name, w.m("memory.rest." + name), w.m("memory.load." + name)})
		}
	}
	w.table("Resident memory, MiB", []string{"process", "at rest", "peak under load"}, rows)
}

func (w *writer) curve() {
	var rows [][]string
	for _, n := range w.s["curve.ended"] {
		name := fmt.Sprintf("curve.%d.", int(n))
		row := []string{number(n), w.spread(name + "deals.per_second"), w.m(name + "deals.cpu_us")}
		for _, process := range []string{postgres, localstack.DealAPI, localstack.LogServer} {
			row = append(row, w.m(name+"deals.cpu_us."+process))
		}
		rows = append(rows, append(row, w.m(name+"count.64.statements"), w.m(name+"count.64.round_trips"), w.m(name+"count.64.exec_us")))
	}
	w.table("Cost of a deal by number of ended deals and leaves, 64 clients", []string{"ended deals", "deals/s", "CPU µs", "Postgres", "deal-api",
		"log-server", "statements", "round trips", "µs in statements"}, rows)
}
