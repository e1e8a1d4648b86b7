-- How the tokens that an endpoint counts for a model relate to the estimates of the gateway.

-- +goose Up
CREATE TABLE token_ratios (
    endpoint TEXT NOT NULL,
    model    TEXT NOT NULL,
    permille INTEGER NOT NULL, -- counted tokens for each thousand that were estimated
    PRIMARY KEY (endpoint, model)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE token_ratios;
