package locks

const workerEnv = "LOCKPROXY_TEST_WORKER"

func workerMain(string) int { return 2 }
