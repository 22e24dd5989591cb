-- Who has the lock: the start of the field, nil and the field; '' for nobody; nil and an error for what is no lock. A lock
-- is a hash of one field, `text:number` and perhaps more, and a count. A field longer than any visitor is not looked into.
local function holder_of(key)
    -- A user without the right to HLEN gets the names of all fields.
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
