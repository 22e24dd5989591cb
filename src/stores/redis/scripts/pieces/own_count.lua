-- Ends the script with a reply if the hold is gone, or if its count is neither `known` nor `wanted`.
local count = redis.pcall('HGET', key, visitor)
if type(count) ~= 'string' then
    return gone(count)
elseif count ~= known and count ~= wanted then
    return {number, {4, now, string.sub(count, 1, 32)}}
end
