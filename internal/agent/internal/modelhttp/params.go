package modelhttp

import (
	"encoding/json"
	"fmt"
	"math"

	"laneway/internal/chat"
)

// Params are the model settings that every provider supports. A nil field is not sent.
type Params struct {
	// Temperature is 0 to 2, TopP 0 to 1.
	Temperature, TopP *float64
	// MaxTokens of the answer, 1 to 10 million.
	MaxTokens *int
	// Stop are strings at which the model ends, at most 16.
	Stop []string
	// ResponseFormat is the format of the answer, as in the chat completions API of OpenAI; nil
	// means text.
	ResponseFormat map[string]any
	// User is the end user as a client of the gateway names them; "" if it names none.
	User string
}

const mostTokens = 10_000_000

// Override returns p with the values in params: temperature, top_p, max_tokens, stop,
// response_format and user. Other names belong to other runners and are ignored. An invalid value
// is an *agent.Error with [chat.FailBadRequest].
func (p Params) Override(params map[string]any) (Params, error) {
	var err error
	for name, value := range params {
		switch name {
		case "temperature":
			p.Temperature, err = number(name, value, 2)
		case "top_p":
			p.TopP, err = number(name, value, 1)
		case "max_tokens":
			p.MaxTokens, err = count(name, value)
		case "stop":
			p.Stop, err = stringList(name, value)
		case "response_format":
			p.ResponseFormat, err = object(name, value)
		case "user":
			p.User, _ = value.(string) // another type is as none
		}
		if err != nil {
			return Params{}, paramError(err)
		}
	}
	return p, nil
}

// Validate reports the setting that is out of its range.
func (p Params) Validate() error {
	for name, value := range map[string]*float64{"temperature": p.Temperature, "top_p": p.TopP} {
		top := map[string]float64{"temperature": 2, "top_p": 1}[name]
		if value == nil {
			continue
		}
		if _, err := number(name, *value, top); err != nil {
			return err
		}
	}
	if p.MaxTokens != nil {
		if _, err := count("max_tokens", *p.MaxTokens); err != nil {
			return err
		}
	}
	_, err := stringList("stop", p.Stop)
	return err
}

func paramError(err error) error {
	failed := Fail(chat.FailBadRequest, err)
	failed.Message = "A parameter of the request is not usable: " + err.Error() + "."
	return failed
}

func number(name string, value any, top float64) (*float64, error) {
	n, ok := float(value)
	if !ok || math.IsNaN(n) || n < 0 || n > top {
		return nil, fmt.Errorf("%s must be a number from 0 to %v", name, top)
	}
	return &n, nil
}

func count(name string, value any) (*int, error) {
	n, ok := float(value)
	if !ok || n != math.Trunc(n) || n < 1 || n > mostTokens {
		return nil, fmt.Errorf("%s must be a whole number from 1 to %d", name, mostTokens)
	}
	whole := int(n)
	return &whole, nil
}

func float(value any) (float64, bool) {
	switch n := value.(type) {
	case float64:
		return n, true
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	default:
		return 0, false
	}
}

func object(name string, value any) (map[string]any, error) {
	members, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s must be an object", name)
	}
	return members, nil
}

func stringList(name string, value any) ([]string, error) {
	var list []string
	switch v := value.(type) {
	case nil:
	case string:
		list = []string{v}
	case []string:
		list = v
	case []any:
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("%s must be a string or a list of strings", name)
			}
			list = append(list, text)
		}
	default:
		return nil, fmt.Errorf("%s must be a string or a list of strings", name)
	}
	if len(list) > 16 {
		return nil, fmt.Errorf("%s has %d strings; the limit is 16", name, len(list))
	}
	return list, nil
}
