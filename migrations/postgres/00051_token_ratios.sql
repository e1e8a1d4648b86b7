-- How the tokens that an endpoint counts for a model relate to the estimates of the gateway.

-- +goose Up
CREATE TABLE token_ratios (
    endpoint text NOT NULL,
    model    text NOT NULL,
    permille bigint NOT NULL, -- counted tokens for each thousand that were estimated
    PRIMARY KEY (endpoint, model)
);

-- +goose Down
DROP TABLE token_ratios;
