"""Start a real Synapse for the sample and the tests, send it requests over its client API, and dump its database."""
