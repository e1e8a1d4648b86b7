package store

import "context"

// TokenRatio is how the tokens that an endpoint counts for a model relate to those that the gateway estimates.
type TokenRatio struct {
	Endpoint, Model string
	// Permille is how many tokens are counted for each thousand that were estimated.
	Permille int
}

// TokenRatios keeps what was learned of endpoints, so that a restart does not begin with estimates that err high.
type TokenRatios interface {
	// TokenRatios lists all, by endpoint and model.
	TokenRatios(ctx context.Context) ([]TokenRatio, error)
	// SaveTokenRatios stores ratios; those of the same endpoint and model are replaced.
	SaveTokenRatios(ctx context.Context, list []TokenRatio) error
}
