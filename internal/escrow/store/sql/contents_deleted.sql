-- Reports whether the contents of the deal $1 are deleted (delete_contents.sql).
SELECT params = '' FROM deals WHERE deal_id = $1
