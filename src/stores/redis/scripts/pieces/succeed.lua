-- Replaces the visitor ARGV[1] by ARGV[2], with a lease of ARGV[3] ms. If a command fails, ARGV[1] keeps its hold.
local set = redis.pcall('HSET', key, ARGV[2], 1)
if type(set) == 'table' then
    return set
end
local expires = redis.pcall('PEXPIRE', key, ARGV[3])
if expires ~= 1 then
    redis.pcall('HDEL', key, ARGV[2])
    return expires
end
call('HDEL', key, ARGV[1])
