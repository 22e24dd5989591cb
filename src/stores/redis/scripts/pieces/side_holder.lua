-- The holder of a held read-write lock: the start of the writer's field, else of a reader's.
local function side_holder_of(key)
    local holder = ''
    for _, field in ipairs(redis.call('HKEYS', key)) do
        if field ~= 'mode' and (holder == '' or string.sub(field, -6) == ':write') then
            holder = string.sub(field, 1, 128)
        end
    end
    return holder
end
