package spec

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestOpenAPIIsValid: the description is valid OpenAPI, its references resolve, and its examples and defaults match their
// schemas.
func TestOpenAPIIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}
