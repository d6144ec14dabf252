"""The tasks of outages.py."""

import os

import celery
import redis

app = celery.Celery("outages", broker=os.environ["BROKER"])
app.conf.broker_connection_retry_on_startup = True


@app.task
def count_celery():
    redis.Redis.from_url(os.environ["BROKER"]).incr("served-celery")


def count_rq():
    redis.Redis.from_url(os.environ["BROKER"]).incr("served-rq")
