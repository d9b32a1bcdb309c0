package pipeline_test

const childFile = "ONCELINE_PIPELINE_CHILD_FILE"

func child() error { return nil }
