package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// bar is a row of the plot: a dot for each of the values, and a bar up to their median.
type bar struct {
	label  string
	values []float64
	colour string
}

const (
	labelWidth  = 190
	scaleWidth  = 520
	valueWidth  = 90
	rowHeight   = 26
	productFill = "#2563eb"
	floorFill   = "#9ca3af"
	insertFill  = "#4b5563"
)

func plot(r *results) string {
	bars := []bar{
		{"pgbench INSERT, 64 clients", r.Samples["insert.64.per_second"], insertFill},
		{"floor, 64 clients", r.Samples[floorName+".per_second"], floorFill}}
	for i := range clientCounts {
		clients := clientCounts[len(clientCounts)-1-i]
		bars = append(bars, bar{fmt.Sprintf("product, %d clients", clients), r.Samples[fmt.Sprintf("deals.%d.per_second", clients)], productFill})
	}
	height := (len(bars)+2)*rowHeight + 14
	axis := 16 + len(bars)*rowHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		labelWidth+scaleWidth+valueWidth, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for power := 1; power <= topPower; power++ {
		x := position(math.Pow(10, float64(power)))
		fmt.Fprintf(&b, `<line x1="%.0f" y1="8" x2="%.0f" y2="%d" stroke="#e5e7eb"/>`+"\n", x, x, axis)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle" fill="#6b7280">%s</text>`+"\n", x, axis+14, thousands(int64(math.Pow(10, float64(power)))))
	}
	for i, row := range bars {
		drawBar(&b, row, 12+i*rowHeight)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#6b7280">deals and INSERTs per second (logarithmic); a dot is one round, a bar is the median</text>`+"\n</svg>\n", labelWidth, axis+36)
	return b.String()
}

// topPower is the exponent of the last line on the scale, at 10^topPower.
const topPower = 4

func position(value float64) float64 {
	return labelWidth + scaleWidth*math.Log10(max(value, 1))/(topPower+0.3)
}

func drawBar(b *strings.Builder, row bar, y int) {
	if len(row.values) == 0 {
		return
	}
	median := samples{"": row.values}.median("")
	end := position(median)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+13, row.label)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="18" fill="%s"/>`+"\n", labelWidth, y, end-labelWidth, row.colour)
	furthest := end
	for _, value := range row.values {
		x := position(value)
		furthest = max(furthest, x)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%d" r="3" fill="white" stroke="black"/>`+"\n", x, y+9)
	}
	fmt.Fprintf(b, `<text x="%s" y="%d">%s</text>`+"\n", strconv.FormatFloat(furthest+8, 'f', 0, 64), y+13, number(median))
}
