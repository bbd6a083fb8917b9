package main

import "context"

type ladderCmd struct{}

func (*ladderCmd) Run(context.Context, *app) (int, error) { return 0, nil }

type whereamiCmd struct{}

func (*whereamiCmd) Run(context.Context, *app) (int, error) { return 0, nil }
