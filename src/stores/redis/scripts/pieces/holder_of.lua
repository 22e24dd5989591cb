-- Returns the holder of the lock, which is the start of the field, then nil and the whole field. Returns '' if the lock is
-- free; nil and an error if the key is not a lock. A lock is a hash of one field, which begins with `text:number`, and a
-- count. The form of a field that is longer than any visitor is not checked.
local function holder_of(key)
    -- Without the right to HLEN, all field names are read.
    local size, fields = redis.pcall('HLEN', key), {}
    if size == 1 or type(size) == 'table' then
        fields = redis.call('HKEYS', key)
        size = #fields
    end
    local field = fields[1] or ''
    if size == 0 then
        return ''
    elseif size == 1 and (#field > 256 or string.find(field, '.:%d+$') or string.find(field, '.:%d+:.'))
        and string.find(redis.call('HGET', key, field), '^%d+$') then
        return string.sub(field, 1, 128), nil, field
    end
    return nil, redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
end
