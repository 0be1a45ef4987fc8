"""A real Synapse for the sample and the tests: started, driven over its client API, dumped."""
