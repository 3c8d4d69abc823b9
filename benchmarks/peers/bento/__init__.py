"""BentoML's task endpoints: submit, ask for the status, get the answer, each over HTTP."""
