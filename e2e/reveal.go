package e2e

// Committed is a deal of two that is REVEALING: party 0 to commitment, party 1
// to bob's values.
func (c *Client) Committed(b Body, commitment string, other Sealed) *Dealt {
	c.T.Helper()
	d := c.Create(b)
	c.Want(200, "POST", d.Path("/commit"), d.Tokens[0], Body{"commitment": commitment})
	d.Commit(1, other)
	return d
}
