-- Begins a hold with the count `wanted` and a lease of ARGV[2] ms. If a command fails, no hold is left.
call('HSET', key, visitor, wanted)
local expires = redis.pcall('PEXPIRE', key, ARGV[2])
if expires ~= 1 then
    -- If the user lacks the right to HDEL, the key is deleted.
    if redis.pcall('HDEL', key, visitor) ~= 1 then
        redis.pcall('DEL', key)
    end
    return expires
end
