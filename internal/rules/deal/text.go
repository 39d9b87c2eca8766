package deal

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is the rule of a text that the initiator writes to people.
type Text struct {
	Most  int  // maximum length in characters (Unicode code points)
	Lines bool // whether it may have several lines, separated by U+000A
}

// The rules of Terms.Title and Terms.Message.
var (
	Title   = Text{Most: 80}
	Message = Text{Most: 1000, Lines: true}
)

const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
	blank     = '\u2800' // a Braille pattern without a dot
)

// Invisible reports whether r shows nothing, or turns the direction of the text around it. The two joiners
// do not count, because Persian, Sinhala and emoji need them, nor do variation selectors.
func Invisible(r rune) bool {
	return r != joiner && r != nonJoiner && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// Check returns why a given text is refused, and what to do, or nil. What a reader sees of an accepted text is all
// of it: Check allows a joiner only between characters that it can join or behind a mark, and a variation selector only
// behind a character that it can vary. The error never quotes the text.
func (t Text) Check(text string) error {
	n := utf8.RuneCountInString(text)
	switch {
	case text == "":
		return errors.New("is empty: leave it out, or give it at least one character")
	case !utf8.ValidString(text):
		return errors.New("is not valid UTF-8: encode it as UTF-8")
	case n > t.Most:
		return fmt.Errorf("has %d characters: shorten it to at most %d", n, t.Most)
	case strings.TrimSpace(text) != text:
		return errors.New("begins or ends with a space or line feed: remove it")
	}
	runes := append([]rune(text), ' ')
	before := ' '
	for i, r := range runes[:n] {
		fits := unicode.IsGraphic(r) && !Invisible(r) && r != blank
		switch {
		case r == '\n':
			fits = t.Lines
		case r == joiner || r == nonJoiner:
			fits = joins(before) && (unicode.Is(unicode.M, before) || joins(runes[i+1]))
		case unicode.Is(unicode.Variation_Selector, r):
			fits = r <= 0xffff && unicode.IsGraphic(before) && !unicode.IsSpace(before) && !unicode.Is(unicode.Variation_Selector, before)
		}
		if !fits {
			return fmt.Errorf("has the character U+%04X at position %d, %s: remove it", r, i+1, t.fault(r))
		}
		before = r
	}
	return nil
}

func joins(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.L, unicode.M, unicode.S)
}

func (t Text) fault(r rune) string {
	switch {
	case unicode.IsControl(r) && t.Lines:
		return "a control character other than the line feed U+000A"
	case unicode.IsControl(r):
		return "a control character"
	}
	return "which is invisible here, reverses text, or has no fixed meaning"
}
