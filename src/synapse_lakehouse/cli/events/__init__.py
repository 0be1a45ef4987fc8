"""Commands on events: who-can-see, visible, state-at, prove-erased."""
