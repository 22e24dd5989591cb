-- Ends the script with a reply if the hold is gone, or if its count is neither `known` nor `wanted`.
local count = redis.pcall('HGET', key, visitor)
if type(count) == 'table' then
    return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
elseif not count or is_over(key, own, visitor) then
    return {number, {2, now, not count and holder_of(key) or ''}}
elseif count ~= known and count ~= wanted then
    return {number, {4, now, string.sub(count, 1, 32)}}
end
