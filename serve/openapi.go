package serve

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/sniblock/snib/remotelock/wire"
)

// openAPI describes the API in OpenAPI 3.1. It is written by hand. Tests in internal/served compare
// it with what the service does.
//
//go:embed openapi.json
var openAPI string

// getOpenAPI answers with the description of the API.
func (s *Service) getOpenAPI(w http.ResponseWriter, r *http.Request, p *Principal) error {
	return s.read(r, p, Action{Op: OpStore}, func(context.Context) error {
		writeText(w, http.StatusOK, wire.TypeJSON, []byte(openAPI))
		return nil
	})
}
