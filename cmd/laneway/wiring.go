package main

import (
	"context"
	"errors"

	"laneway/internal/config"
)

// errNotWired is what the parts answer that this build does not have.
var errNotWired = errors.New("this build of laneway does not have that part")

type absent struct{}

func (absent) Serve(context.Context, serveInput) error { return errNotWired }

func (absent) Migrate(context.Context, config.Config, string) ([]migration, error) {
	return nil, errNotWired
}

func gatewayService() service { return absent{} }

func storeMigrator() migrator { return absent{} }
