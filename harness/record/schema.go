package record

import _ "embed"

// SchemaJSON is the JSON Schema (draft 2020-12) of one line of a run file. It refuses keys it does not know.
//
//go:embed schema/run.schema.json
var SchemaJSON []byte
