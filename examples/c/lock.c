/* Does a piece of work under the lock "report". Needs hiredis: apt-get install libhiredis-dev
 *
 * LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
 * milliseconds.
 * Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached, 75 another client has the lock. */
#define _DEFAULT_SOURCE
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile. */
static const char *WRITE =
	"local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)\n"
	"if tonumber(ARGV[1]) < seen then return 0 end\n"
	"redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])\n"
	"return 1";

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static redisContext *open_url(const char *url) {
	char host[256] = "127.0.0.1";
	int port = 7379;
	if (url != NULL)
		sscanf(url, "redis://%255[^:]:%d", host, &port);
	redisContext *c = redisConnectWithTimeout(host, port, (struct timeval){.tv_sec = 3});
	if (c == NULL || c->err) {
		fprintf(stderr, "no lock: %s\n", c ? c->errstr : "out of memory");
		exit(69);
	}
	redisSetTimeout(c, (struct timeval){.tv_sec = 5}); /* WAIT stays below it */
	return c;
}

int main(void) {
	const char *url = getenv("LOCKPROXY_URL"), *where = getenv("REDIS_URL"), *work = getenv("WORK_MS");

	/* A lock without PX is renewed while its connection is open. */
	redisContext *c = open_url(url), *data = open_url(where ? where : url);

	/* GRACE 0: if this process dies, the lock is free at once. */
	redisReply *r = redisCommand(c, "LOCK report WAIT 2000 GRACE 0");
	if (r == NULL || r->type == REDIS_REPLY_ERROR) {
		fprintf(stderr, "no lock: %s\n", r ? r->str : c->errstr);
		return 69;
	}
	if (r->type == REDIS_REPLY_NIL) {
		fprintf(stderr, "busy: another client has the lock\n");
		return 75;
	}
	long long fence = r->integer;
	freeReplyObject(r);
	printf("fence %lld\n", fence);
	fflush(stdout);

	usleep(1000 * (work ? atoi(work) : 500)); /* the work */

	redisReply *written = redisCommand(data, "EVAL %s 1 report:result %lld c", WRITE, fence);
	redisReply *unlocked = redisCommand(c, "UNLOCK report");
	if (written == NULL || unlocked == NULL) {
		fprintf(stderr, "lost: %s\n", written ? c->errstr : data->errstr);
		return 1;
	}
	if (unlocked->type == REDIS_REPLY_ERROR && (starts(unlocked->str, "LOSTLEASE") || starts(unlocked->str, "NOTHELD"))) {
		fprintf(stderr, "lost: %s\n", unlocked->str);
		return 1;
	}
	if (written->type != REDIS_REPLY_INTEGER || written->integer != 1 || unlocked->type == REDIS_REPLY_ERROR) {
		fprintf(stderr, "lost: %s\n", unlocked->type == REDIS_REPLY_ERROR ? unlocked->str : "a client with a larger fence has written");
		return 1;
	}
	freeReplyObject(written);
	freeReplyObject(unlocked);
	redisFree(data);
	redisFree(c);
	printf("done\n");
	return 0;
}
