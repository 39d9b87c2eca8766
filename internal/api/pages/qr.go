package pages

import (
	"fmt"
	"net/http"
	"strings"

	"rsc.io/qr"

	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// What a QR code may show of a path. A deal_id has 24 of these characters.
const (
	longestID    = 64
	idCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// qrCode serves the address of the page /r/{deal_id} as a QR code, whether or not there is such a deal. Without the public
// address of the service there is none.
func qrCode(publicURL string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("deal_id")
		if publicURL == "" || len(id) > longestID || strings.Trim(id, idCharacters) != "" {
			web.Error(w, problem.New(problem.NotFound, "there is no QR code for this address"))
			return
		}
		code, err := qr.Encode(publicURL+"/r/"+id, qr.M)
		if err != nil {
			web.Error(w, problem.New(problem.NotFound, "there is no QR code for this address"))
			return
		}
		file("qr.svg", svg(code)).ServeHTTP(w, r)
	})
}

// svg draws a code with the quiet zone of 4 modules that ISO/IEC 18004 asks for.
func svg(code *qr.Code) []byte {
	const quiet = 4
	var dark strings.Builder
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			from := x
			for x < code.Size && code.Black(x, y) {
				x++
			}
			if x > from {
				fmt.Fprintf(&dark, "M%d %dh%dv1H%dz", from+quiet, y+quiet, x-from, from+quiet)
			}
		}
	}
	side := code.Size + 2*quiet
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%dv%dH0z"/><path d="%s"/></svg>`, side, side, side, side, dark.String())
}
