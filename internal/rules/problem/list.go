package problem

import (
	"fmt"
	"strings"
)

const mostListed = 8

// List formats and joins items for a text. Of more than 8 items it names the first 8 and the
// number of the others.
func List[T any](items []T, format, separator string) string {
	var texts []string
	for _, item := range items[:min(len(items), mostListed)] {
		texts = append(texts, fmt.Sprintf(format, item))
	}
	if more := len(items) - mostListed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}
