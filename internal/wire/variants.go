package wire

import (
	"bytes"
	"encoding/json"
)

// Variants lists the types that the data of an event may have.
func (AgentData) Variants() []any { return []any{LifecycleData{}, AssistantData{}, ToolData{}} }

// MarshalJSON is the JSON of the variant.
func (d AgentData) MarshalJSON() ([]byte, error) { return encode(d.Of) }

// encode writes JSON without HTML escapes; the encoder of the whole frame decides about those.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err //nolint:wrapcheck // the caller is the encoder
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// storeRaw stores JSON unchanged, for types with variants that a client reads.
func storeRaw(of *any, data []byte) error {
	*of = json.RawMessage(bytes.Clone(data))
	return nil
}

// UnmarshalJSON stores the JSON of the variant.
func (d *AgentData) UnmarshalJSON(data []byte) error { return storeRaw(&d.Of, data) }
