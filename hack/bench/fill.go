package main

import "errors"

func (b *bench) fill(int) error { return errors.New("-finished is not built yet") }
