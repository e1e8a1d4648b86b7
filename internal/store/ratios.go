package store

import "context"

// TokenRatio relates the token count of an endpoint for a model to the estimate of the gateway.
type TokenRatio struct {
	Endpoint, Model string
	// Permille is the number of tokens counted per thousand estimated.
	Permille int
}

// TokenRatios stores the measured ratios, so that a restart does not begin with estimates that are too high.
type TokenRatios interface {
	// TokenRatios lists all ratios by endpoint and model.
	TokenRatios(ctx context.Context) ([]TokenRatio, error)
	// SaveTokenRatios stores ratios; those of the same endpoint and model are replaced.
	SaveTokenRatios(ctx context.Context, list []TokenRatio) error
}
