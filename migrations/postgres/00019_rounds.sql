-- What the model of a running turn asked for and was given, so that a turn that runs again goes on behind it. The rows go when the turn ends, with
-- what they contain in its transcript; those of a run that never ends are deleted with the run.

-- +goose Up
CREATE TABLE turn_rounds (
    run_id text NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    round  integer NOT NULL, -- from 1
    kind   text NOT NULL, -- asked: text and calls; result: of one call; input: a message that joined behind the results
    n      bigint NOT NULL, -- asked: 0; result: the call, from 0; input: the number of the message in its session
    body   text NOT NULL, -- JSON; '' for input
    PRIMARY KEY (run_id, round, kind, n)
);

-- +goose Down
DROP TABLE turn_rounds;
