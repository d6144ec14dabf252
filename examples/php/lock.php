<?php
// Does a piece of work under the lock "report". Needs the extension redis (phpredis): apt-get install php-cli php-redis
//
// LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
// milliseconds.
// Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached, 75 another client has the lock.

// The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
const WRITE = <<<'LUA'
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1
LUA;

function finish(int $code, string $why): never
{
    fwrite(STDERR, $why . "\n");
    exit($code);
}

// phpredis answers false for a null, and for most errors: getLastError() tells them apart.
// Error replies with a code of their own, such as NOTHELD and LOSTLEASE, are thrown as RedisException.
function command(Redis $redis, mixed ...$args): mixed
{
    $redis->clearLastError();
    $reply = $redis->rawCommand(...$args);
    if ($reply === false && $redis->getLastError() !== null) {
        throw new RedisException($redis->getLastError());
    }
    return $reply;
}

function connect(string $url): Redis
{
    // No pconnect(): that keeps the connection, and with it the lock, after the end of the script.
    $redis = new Redis();
    $redis->connect(parse_url($url, PHP_URL_HOST), parse_url($url, PHP_URL_PORT));
    return $redis;
}

$url = getenv('LOCKPROXY_URL') ?: 'redis://127.0.0.1:7379';
try {
    $redis = connect($url);
    $data = connect(getenv('REDIS_URL') ?: $url);
    // WAIT stays below default_socket_timeout, 60 s: after that phpredis throws, and the connection cannot be used any more.
    // GRACE 0: if this process dies, the lock is free at once.
    // rawCommand ignores Redis::OPT_PREFIX: write the whole name.
    $fence = command($redis, 'LOCK', 'report', 'WAIT', 2000, 'GRACE', 0);
} catch (RedisException $err) {
    finish(69, 'no lock: ' . $err->getMessage());
}
if ($fence === false) {
    finish(75, 'busy: another client has the lock');
}
echo "fence $fence\n";

usleep(1000 * (int) (getenv('WORK_MS') ?: 500)); // the work

$written = $data->eval(WRITE, ['report:result', $fence, 'php'], 1);
try {
    command($redis, 'UNLOCK', 'report'); // 1, or 0 if this owner still has holds: both are false to if (!…), so do not test it that way
} catch (RedisException $err) {
    if (preg_match('/^(LOSTLEASE|NOTHELD)/', $err->getMessage())) {
        finish(1, 'lost: ' . $err->getMessage());
    }
    throw $err;
}
if (!$written) {
    finish(1, 'lost: a client with a larger fence has written');
}
echo "done\n";
