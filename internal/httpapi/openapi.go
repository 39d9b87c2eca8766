package httpapi

import _ "embed"

// openAPI is the OpenAPI 3.0 document, written by hand: the one truth of the
// surface. SPEC 9.2: it carries interface version 0.1.0.
//
//go:embed openapi.json
var openAPI []byte
