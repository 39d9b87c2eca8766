package deal

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTexts(t *testing.T) {
	for name, row := range map[string]struct {
		rule Text
		text string
		says string // a part of the error; empty: the text is accepted
	}{
		"a title":                    {Title, "Who gets what of the flat?", ""},
		"markup, which is only text": {Title, `<img src=x onerror=alert(1)> & {token}`, ""},
		"other scripts":              {Title, "Ξένια, Иван, 東京　大阪, مرحبا", ""},
		"a word with a non-joiner":   {Title, "می\u200cخواهم", ""},
		"a joiner after a virama":    {Title, "അവന\u0d4d\u200d വന്നു", ""},
		"a family and a red heart":   {Title, "👩\u200d👩\u200d👧 ❤\ufe0f ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", ""},
		"a line of French":           {Title, "Prêts\u202f? «\u00a0Oui\u00a0»", ""},
		"lines":                      {Message, "Hello,\n\n- the car\n- the boat", ""},
		"the longest title":          {Title, strings.Repeat("😀", 80), ""},
		"the longest message":        {Message, strings.Repeat("ü", 1000), ""},
		"too long a title":           {Title, strings.Repeat("a", 81), "has 81 characters: shorten it to at most 80"},
		"too long a message":         {Message, strings.Repeat("a", 1001), "has 1001 characters: shorten it to at most 1000"},
		"nothing":                    {Title, "", "is empty: leave it out"},
		"half a character":           {Title, "a\xc3", "is not valid UTF-8"},
		"only spaces":                {Message, " \n ", "begins or ends with a space"},
		"a space at the end":         {Title, "a ", "begins or ends with a space"},
		"a line feed at the start":   {Message, "\na", "begins or ends with a space"},
		"a title of two lines":       {Title, "a\nb", "U+000A at position 2, a control character: remove it"},
		"a tab":                      {Message, "a\tb", "U+0009 at position 2, a control character other than the line feed U+000A"},
		"lines of Windows":           {Message, "a\r\nb", "U+000D"},
		"U+0000":                     {Message, "a\x00b", "U+0000"},
		"a line separator":           {Message, "a\u2028b", "U+2028"},
		"text that turns around":     {Title, "gpj\u202eexe", "U+202E at position 4, which is invisible here, reverses text"},
		"an isolate":                 {Title, "a\u2067b", "U+2067"},
		"a mark of direction":        {Title, "a\u200fb", "U+200F"},
		"a zero-width space":         {Title, "a\u200bb", "U+200B"},
		"a byte order mark":          {Title, "a\ufeffb", "U+FEFF"},
		"a soft hyphen":              {Title, "a\u00adb", "U+00AD"},
		"hidden ASCII":               {Message, "a\U000e0041", "U+E0041"},
		"a Hangul filler":            {Title, "a\u3164b", "U+3164"},
		"a blank of Braille":         {Title, "\u2800", "U+2800"},
		"a joiner in Latin":          {Title, "an\u200dn", "U+200D at position 3"},
		"two joiners":                {Title, "😀\u200d\u200d😀", "U+200D"},
		"a joiner at the end":        {Title, "😀\u200d", "U+200D"},
		"two selectors":              {Title, "❤\ufe0f\ufe0f", "U+FE0F at position 3"},
		"a selector at the start":    {Title, "\ufe0fa", "U+FE0F at position 1"},
		"a selector of plane 14":     {Title, "a\U000e0100", "U+E0100"},
		"private use":                {Title, "a\ue000", "U+E000"},
		"unassigned":                 {Title, "a\U000effff", "U+EFFFF"},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.rule.Check(row.text)
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("Check(%+q) = %v, want %q", row.text, err, row.says)
			}
			if err != nil && len(err.Error()) > 160 {
				t.Errorf("the error has %d bytes: %v", len(err.Error()), err)
			}
		})
	}
}

// textProperties: an accepted text keeps its limits and shows each of its characters, and each refusal of
// one is short and names no text. A text that keeps the rule of a title keeps that of a message.
func textProperties(t *rapid.T) {
	odd := rapid.SampledFrom([]rune("ab \n\t❤😀م\u200c\u200d\ufe0f\u200b\u202e\u2800\u00a0\u0301\U000e0041"))
	text := string(rapid.SliceOfN(rapid.OneOf(odd, odd, rapid.Rune()), 0, 90).Draw(t, "text"))
	title, message := Title.Check(text), Message.Check(text)
	if title == nil && message != nil {
		t.Fatalf("%+q is a title and no message: %v", text, message)
	}
	if message != nil {
		if len(message.Error()) > 160 || len(text) > 24 && strings.Contains(message.Error(), text) {
			t.Fatalf("the refusal of %+q is %v", text, message)
		}
		return
	}
	runes := []rune(text)
	if !utf8.ValidString(text) || len(runes) == 0 || len(runes) > Message.Most || unicode.IsSpace(runes[0]) || unicode.IsSpace(runes[len(runes)-1]) {
		t.Fatalf("%+q is accepted", text)
	}
	if lines := strings.Contains(text, "\n"); title == nil && (lines || len(runes) > Title.Most) || title != nil && !lines && len(runes) <= Title.Most {
		t.Fatalf("%+q as a title: %v", text, title)
	}
	hidden := 0 // in a row
	for _, r := range runes {
		if Invisible(r) || unicode.IsControl(r) && r != '\n' {
			t.Fatalf("%+q is accepted with U+%04X", text, r)
		}
		if hidden++; unicode.IsGraphic(r) && !unicode.Is(unicode.Variation_Selector, r) {
			hidden = 0
		}
		if hidden > 2 && r != '\n' {
			t.Fatalf("%+q is accepted with %d invisible characters in a row", text, hidden)
		}
	}
}

func TestTextProperties(t *testing.T) { rapid.Check(t, textProperties) }

func FuzzTextProperties(f *testing.F) { f.Fuzz(rapid.MakeFuzz(textProperties)) }
