-- Enters a hold once more, or tells why not: `known` is the count that stands there, as far as the visitor knows, ARGV[4] the
-- count wanted. The end of a script that found a free lock before.
if known == '0' then
    local holder, flaw = holder_of(key)
    return flaw or {number, {0, now, call('PTTL', key), holder}}
end
local count = redis.pcall('HGET', key, visitor)
if type(count) == 'table' then
    return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
elseif not count then
    return {number, {2, now, holder_of(key) or 'a key of another type'}}
end
if count ~= known and count ~= ARGV[4] then
    return {number, {4, now, string.sub(count, 1, 32)}}
end
call('PEXPIRE', key, ARGV[2])
call('HSET', key, visitor, ARGV[4])
local left = expiry - now
return number * 4194304 + (left < 4194304 and left or 4194303)
