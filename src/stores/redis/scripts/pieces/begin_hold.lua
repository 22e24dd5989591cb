-- Begins a hold with the count ARGV[4] for ARGV[2] ms. After an error, nothing of it is left.
call('HSET', key, visitor, ARGV[4])
local expires = redis.pcall('PEXPIRE', key, ARGV[2])
if expires ~= 1 then
    -- The user may lack the right to one of these two commands.
    if redis.pcall('HDEL', key, visitor) ~= 1 then
        redis.pcall('DEL', key)
    end
    return expires
end
