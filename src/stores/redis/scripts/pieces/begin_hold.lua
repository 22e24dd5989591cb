-- Begins a hold with the count ARGV[4] for ARGV[2] ms, or leaves nothing.
call('HSET', key, visitor, ARGV[4])
local expires = redis.pcall('PEXPIRE', key, ARGV[2])
if expires ~= 1 then
    -- A user without the right to the one may have the right to the other.
    if redis.pcall('HDEL', key, visitor) ~= 1 then
        redis.pcall('DEL', key)
    end
    return expires
end
